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

wait_until() {  # repeat a command until it succeeds; end the job if a node of the cluster has ended
    local started
    started=$(jobs -rp | wc -l)
    until "$@" 2>/dev/null; do
        sleep 1
        if [ "$(jobs -rp | wc -l)" -lt "$started" ]; then
            echo "a node of the Ray cluster did not start, or ended: see the messages above" >&2
            exit 1
        fi
    done
}
listens() { (exec 3<>"/dev/tcp/$head/6379"); }
has_all_cpus() { ray status --address="$address" | grep -q "/$((SLURM_NNODES * SLURM_CPUS_PER_TASK)).0 CPU"; }

head=$(hostname)
address="$head:6379"
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"  # srun does not take over sbatch's since SLURM 22.05
srun --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --port=6379 --num-cpus="$SLURM_CPUS_PER_TASK" --include-dashboard=false --block &
wait_until listens
if [ "$SLURM_NNODES" -gt 1 ]; then
    srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$head" \
        ray start --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
fi
wait_until has_all_cpus

routing-gym evaluate random/CVRP-100 --size 100000 --executor ray --address "$address" \
    --tours runs/tours --out runs/evaluation pyvrp:time_limit=5 trained
