"""Dynamic dimensions while a model is captured: asked for, guarded, delivered."""
