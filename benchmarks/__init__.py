"""What measures: scripts in folders by what they measure, their helpers, and the figures in `results`."""
