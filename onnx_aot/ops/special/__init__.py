"""Special functions, by the approximations that their files cite."""
