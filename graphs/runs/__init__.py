"""One run of a program: its folder, its commits, how far it is, what is shown of it, and how it goes on after it stopped."""
