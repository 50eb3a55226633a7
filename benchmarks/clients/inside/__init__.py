"""Programs that run in the environments of the clients, which have nothing of this project."""
