"""An independent model of the engine's rules, which judges what a run made of its time: ``measured`` gives it a run's times."""
