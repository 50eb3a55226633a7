"""Translations that users bring, in whichever form they have them."""
