# Shared by Tessera's scripts for Slurm. Sourced by bash, with the configuration as its argument or at its usual place.
# Text that a user chose (the comment of a job) is matched against strict patterns and never evaluated.
# shellcheck shell=bash disable=SC2034
set -euof pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin  # Slurm sets none
export LC_ALL=C

LIBRARIES=/usr/lib/tessera         # where the shims are
JOBS=/run/tessera-slurm            # a file for each job, from the prolog to the task prolog
DEFAULT_MEMORY=25%                 # of jobs that do not say
DEFAULT_COMPUTE=0:100
MAX_MEMORY=                        # most that a job may ask for, such as 40G; empty: what the GPU has
MAX_COMPUTE=100                    # most percent of the time that it may be promised
WEIGHT=100
PRIORITY=8
GANG=yes                           # whether the GPUs of a job have their turns together, if it does not say
QUOTA=yes                          # whether the quota of a job's user counts
REQUEUE=yes                        # whether a batch job for which others leave no room goes back into the queue
TESSERA_RUN_DIR=/run/tessera

configuration=${1:-/etc/tessera/slurm.conf}
# shellcheck source=/dev/null
if [[ -e $configuration ]]; then source "$configuration"; fi
export TESSERA_RUN_DIR

say() { echo "tessera: $*" >&2; }

# The fault is the node's, not the job's: slurmd drains the node.
fail() {
  say "$*"
  exit 1
}

[[ ${SLURM_JOB_ID:-} =~ ^[0-9]{1,10}$ ]] || fail "SLURM_JOB_ID is no number; run this as a script of Slurm's"
# Names of vGPUs: slurm-JOB-GPU.
prefix=slurm-$SLURM_JOB_ID-
record=$JOBS/$SLURM_JOB_ID

# The vGPUs of this job. Fails where no daemon answers.
vgpus_of_job() {
  local all
  all=$(tessera vgpu ls --quiet) || return 1
  grep -xE -- "${prefix}[0-9]+" <<< "$all" || true
}

remove_vgpus() {
  local names name
  names=$(vgpus_of_job) || return 1
  for name in $names; do tessera vgpu rm --force "$name" || return 1; done
}
