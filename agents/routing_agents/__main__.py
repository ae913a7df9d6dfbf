"""Run `routing-gym` where its folder is not on the PATH: python -m routing_agents solve FILE."""

from routing_agents.cli import main

if __name__ == "__main__":
    main()
