"""`one-step`: one clipped gradient sum a round, at the released model."""
