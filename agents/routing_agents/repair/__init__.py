"""Large-neighbourhood search: parts of a tour are solved anew by a trained policy, again and again."""
