"""Real workers, real processes, real signals: what is promised, shown from outside."""
