"""Fields of seminar announcements (table 2)."""
