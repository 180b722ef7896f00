"""Where tasks and demonstrations come from: files and generators."""
