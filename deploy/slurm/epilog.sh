#!/bin/bash
# Slurm's Epilog: removes the job's vGPUs. Programs of the job that are left get an error from then on.
# shellcheck source=deploy/slurm/common.sh
source "$(dirname "$(readlink -f "$0")")/common.sh"

# Without a record there may be vGPUs all the same: the prolog may have been ended in the middle.
remove_vgpus || [[ ! -e $record ]] || fail "the vGPUs of job $SLURM_JOB_ID cannot be removed from $TESSERA_RUN_DIR"
rm -f "$record"
