"""For people and scripts. A command's module is imported only when it runs."""
