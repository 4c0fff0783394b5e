"""One agent between two forms: a Move Stream becomes a package, and a package a Move Stream."""
