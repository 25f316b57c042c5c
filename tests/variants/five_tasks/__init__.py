"""A project of five stock tasks, which runs on one backend or the other by its settings alone."""
