"""The command line: what people and scripts type. Talks to brokers as any client does."""
