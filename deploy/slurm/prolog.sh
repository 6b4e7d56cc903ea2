#!/bin/bash
# Slurm's Prolog: makes a vGPU on each GPU of the job, as its comment asks for (docs/slurm.md), owned by its user.
#
# A request that cannot be met must not drain the node: the prolog writes it down, and the task prolog tells the user.
# shellcheck source=deploy/slurm/common.sh
source "$(dirname "$(readlink -f "$0")")/common.sh"

[[ ${SLURM_JOB_GPUS:-} ]] || exit 0  # a job without GPUs

refuse() {
  echo "refused $(tr -cd '[:print:]' <<< "$*")" > "$record"
  exit 0
}

# "8G" in bytes. The patterns have let only digits and one letter through.
bytes() {
  local number=${1%[KMGT]} letter=${1##*[0-9]}
  case $letter in
    K) echo $((10#$number << 10)) ;;
    M) echo $((10#$number << 20)) ;;
    G) echo $((10#$number << 30)) ;;
    T) echo $((10#$number << 40)) ;;
    *) echo $((10#$number)) ;;
  esac
}

# Sets memory and compute by the word "tessera:memory=8G,compute=30" of the comment.
read_comment() {
  local words word fields field
  read -ra words -d '' <<< "${SLURM_JOB_COMMENT:-}" || true
  for word in "${words[@]}"; do
    [[ $word == tessera:* ]] || continue
    IFS=, read -ra fields <<< "${word#tessera:}"
    for field in "${fields[@]}"; do
      if [[ $field =~ ^memory=([0-9]{1,6}[KMGT])$ ]]; then
        memory=${BASH_REMATCH[1]}
        if [[ $MAX_MEMORY ]] && (($(bytes "$memory") > $(bytes "$MAX_MEMORY"))); then
          refuse "memory=$memory is more than the $MAX_MEMORY that a job may have here"
        fi
      elif [[ $field =~ ^compute=([0-9]{1,3})(:[0-9]{1,3})?$ ]]; then
        compute=${field#compute=}
        if ((10#${BASH_REMATCH[1]} > MAX_COMPUTE)); then
          refuse "compute=$compute is more than the $MAX_COMPUTE % that a job may be promised here"
        fi
      else
        refuse "'$field' in the comment is not understood; use --comment tessera:memory=8G,compute=30"
      fi
    done
  done
}

# The GPUs' numbers of "0,2-3", a word each.
gpus_of_job() {
  local part
  for part in ${SLURM_JOB_GPUS//,/ }; do
    if [[ $part =~ ^([0-9]{1,3})-([0-9]{1,3})$ ]]; then
      seq "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
    elif [[ $part =~ ^[0-9]{1,3}$ ]]; then
      echo "$part"
    else
      return 1
    fi
  done
}

# Runs a command as the job's user, so that no other user's programs may join the vGPU, with the group of operators for
# this one request, so that no quota counts but the job's. If there is no such group, root asks, and everybody may join.
as_user() {
  local group
  group=$(stat -c '%g' "$TESSERA_RUN_DIR/api.sock")
  if [[ $SLURM_JOB_UID == 0 || $group == 0 ]]; then
    "$@"
  else
    setpriv --reuid="$SLURM_JOB_UID" --regid="$group" --clear-groups --inh-caps=-all -- "$@"
  fi
}

# vGPUs outlive a boot, and jobs do not: removes those of jobs without a record, which a boot has emptied.
remove_leftovers() {
  local all name job
  all=$(tessera vgpu ls --quiet) || return 1
  for name in $(grep -xE -- 'slurm-[0-9]{1,10}-[0-9]+' <<< "$all" || true); do
    job=${name#slurm-} job=${job%-*}
    [[ -e $JOBS/$job ]] || tessera vgpu rm --force "$name" || return 1
  done
}

[[ ${SLURM_JOB_UID:-} =~ ^[0-9]{1,10}$ ]] || fail "SLURM_JOB_UID is no number"
gpus=$(gpus_of_job) || fail "SLURM_JOB_GPUS is no list of GPUs"
umask 022
mkdir -p "$JOBS"
echo "refused the prolog has not ended" > "$record"  # before there are vGPUs: of another job's they are not left over
{ remove_vgpus && remove_leftovers; } || fail "tesserad does not answer in $TESSERA_RUN_DIR; see 'systemctl status tesserad'"  # of a job requeued

memory=$DEFAULT_MEMORY compute=$DEFAULT_COMPUTE
read_comment
names=()
for gpu in $gpus; do
  if ! said=$(as_user tessera vgpu create "$prefix$gpu" --gpu "$gpu" --memory "$memory" \
    --memory-request "$memory" --compute "$compute" --weight "$WEIGHT" --priority "$PRIORITY" 2>&1); then
    remove_vgpus || fail "the job's vGPUs cannot be removed"
    refuse "${said#tessera: }"
  fi
  names+=("$prefix$gpu")
done
(IFS=,; echo "vgpus ${names[*]}") > "$record"
