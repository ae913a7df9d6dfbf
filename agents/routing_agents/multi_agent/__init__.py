"""Networks and players for games of several agents, after Wang, "Deep Reinforcement Learning", chapter 16."""
