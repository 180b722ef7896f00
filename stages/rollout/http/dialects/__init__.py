"""What the servers are asked, and how their answers are read: a file a kind of server."""
