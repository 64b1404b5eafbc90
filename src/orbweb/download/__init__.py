"""How one request becomes a response: the client, robots.txt, the middlewares and their order."""
