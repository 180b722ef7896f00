"""Trainings that are interrupted anywhere and gone on with: what is made again, doubled, lost or left behind."""
