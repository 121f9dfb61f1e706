"""Speakers of seminar announcements (table 1)."""
