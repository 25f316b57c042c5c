"""Operations that are shipped: HTTP JSON, and mail through Django's backends."""
