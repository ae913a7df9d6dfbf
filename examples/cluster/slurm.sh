#!/bin/bash
# A Ray cluster of four SLURM nodes, and an evaluation on it: sbatch examples/cluster/slurm.sh
# The environment (.venv) lies on a file system that all nodes share.
#SBATCH --job-name=routing-gym
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=02:00:00
set -euo pipefail
source .venv/bin/activate
export RAY_AUTH_MODE=token  # the token lies in the home folder, which the nodes share
ray get-auth-token --generate >/dev/null

head=$(hostname)
address="$head:6379"
srun --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --port=6379 --num-cpus="$SLURM_CPUS_PER_TASK" --include-dashboard=false --block &
until (exec 3<>"/dev/tcp/$head/6379") 2>/dev/null; do sleep 1; done
if [ "$SLURM_NNODES" -gt 1 ]; then
    srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$head" \
        ray start --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
fi
cpus=$((SLURM_NNODES * SLURM_CPUS_PER_TASK))
until ray status --address="$address" 2>/dev/null | grep -q "/$cpus.0 CPU"; do sleep 1; done

routing-gym evaluate random/CVRP-100 --size 100000 --executor ray --address "$address" \
    --tours runs/tours --out runs/evaluation pyvrp:time_limit=5 trained
