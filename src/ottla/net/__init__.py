"""Net: listeners, connections, back-pressure. Moves frames and never knows what they mean."""
