"""The named scenarios of the fault plan about processes, signals and the database; each test carries its number."""
