"""A planner: measures the parts of a training graph once, and plays the same graph with other settings in virtual time."""
