#!/bin/bash
# Slurm's Epilog: removes the job's vGPUs. Programs of the job that still run get errors from then on.
# shellcheck source=deploy/slurm/common.sh
source "$(dirname "$(readlink -f "$0")")/common.sh"

# There may be vGPUs without a record: the prolog may have been killed in the middle.
remove_vgpus || [[ ! -e $record ]] || fail "the vGPUs of job $SLURM_JOB_ID cannot be removed from $TESSERA_RUN_DIR"
rm -f "$record"
