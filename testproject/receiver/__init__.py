"""A partner of the shop that hears of paid orders: it takes webhooks, checks who signed them, and fails at times."""
