"""The backend of Django's tasks, and the results of jobs."""
