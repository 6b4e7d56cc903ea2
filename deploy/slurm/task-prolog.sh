#!/bin/bash
# Slurm's TaskProlog, as the job's user: its output puts each task of the job into the job's vGPUs.
# shellcheck source=deploy/slurm/common.sh
source "$(dirname "$(readlink -f "$0")")/common.sh"

if [[ -e $record ]]; then
  read -r what rest < "$record"
else
  [[ ${SLURM_JOB_GPUS:-}${SLURM_STEP_GPUS:-} ]] || exit 0  # a job without GPUs
  what=refused rest="Slurm has not run its prolog here; see PrologFlags=Alloc"
fi
# A refused job gets a vGPU that does not exist: if Slurm starts its tasks nonetheless (older versions do), they have no
# GPU, rather than one without limits.
status=0
if [[ $what != vgpus ]]; then
  status=1
  echo "print tessera: this job has no GPU: $rest"
  rest=${prefix}refused
fi
echo "export LD_PRELOAD=$LIBRARIES/libcuda.so.1:$LIBRARIES/libnvidia-ml.so.1${LD_PRELOAD:+:$LD_PRELOAD}"
echo "export TESSERA_VGPU=$rest"
echo "export TESSERA_RUN_DIR=$TESSERA_RUN_DIR"
exit $status
