#!/bin/bash
# Slurm's Prolog: makes a vGPU on each GPU of the job, as its comment asks for (docs/slurm.md), owned by its user.
#
# A request that cannot be met must not drain the node, which a prolog that fails does. If others leave no room for it
# now, the job goes back into the queue; otherwise the prolog writes the reason down, and the task prolog tells the user.
# shellcheck source=deploy/slurm/common.sh
source "$(dirname "$(readlink -f "$0")")/common.sh"

[[ ${SLURM_JOB_GPUS:-} ]] || exit 0  # a job without GPUs

refuse() {
  echo "refused $(tr -cd '[:print:]' <<< "$*")" > "$record"
  exit 0
}

# Whether waiting may help: there is no room now, or not within the user's quota, and jobs that will end have vGPUs here.
# An end-to-end test has the daemon say these words.
may_wait() {
  local all
  [[ $1 =~ ' in use, '|'cannot promise '|'no GPU has room' ]] || return 1
  all=$(tessera vgpu ls --quiet) || return 1
  grep -qE -- '^slurm-[0-9]{1,10}-[0-9]+$' <<< "$all"
}

# Puts the job back into the queue, with the reason where 'scontrol show job' has it. Fails for jobs that are not batch
# jobs, for those whose user forbade it, and where Slurm does not answer. Slurm itself lets two minutes pass before it
# starts the job again. Do not shorten that: until the old credential has expired, slurmd may leave out the prolog.
requeue() {
  local comment
  comment="tessera: $(date '+%F %T'): not started: $1"
  [[ $REQUEUE == yes ]] && timeout 10 scontrol requeue "$SLURM_JOB_ID" > /dev/null 2>&1 || return 1
  timeout 10 scontrol update JobId="$SLURM_JOB_ID" AdminComment="$comment" > /dev/null 2>&1 || say "no '$comment'"
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

# Sets memory, compute and gang by the word "tessera:memory=8G,compute=30" of the comment.
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
      elif [[ $field =~ ^gang=(yes|no)$ ]]; then
        gang=${BASH_REMATCH[1]}
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

# The group of operators. 0: there is none.
operators() { stat -c '%g' "$TESSERA_RUN_DIR/api.sock"; }

# Whether vGPUs are the job's user's: without a group of operators root makes them, and everybody may join.
for_user() { [[ $SLURM_JOB_UID != 0 && $(operators) != 0 ]]; }

# Runs a command as the job's user, in the user's groups, so that the vGPU and its quota are the user's; and with the
# group of operators for this one request, because only operators make vGPUs of jobs.
as_user() {
  local groups
  if ! for_user; then
    "$@"
    return
  fi
  if groups=$(id -G -- "$SLURM_JOB_UID" 2> /dev/null); then
    groups=--groups=${groups// /,}
  else
    groups=--clear-groups  # the node does not know the user
  fi
  setpriv --reuid="$SLURM_JOB_UID" --regid="$(operators)" "$groups" --inh-caps=-all -- "$@"
}

# Makes the job's vGPU on this GPU: with a weight and a priority that each quota allows, and then with the site's.
make_vgpu() {
  local name=$prefix$1 more=()
  if [[ $QUOTA == yes ]] && for_user; then more+=(--within-quota); fi
  if [[ $gang == yes && $gpus == *$'\n'* ]]; then more+=(--gang "${prefix%-}"); fi
  as_user tessera vgpu create "$name" --gpu "$1" --memory "$memory" --memory-request "$memory" --compute "$compute" \
    --weight 1 --priority 15 "${labels[@]}" "${more[@]}" && tessera vgpu set "$name" --weight "$WEIGHT" --priority "$PRIORITY"
}

# Labels of its metrics. The names are those that administrators gave, without what metrics would not have.
read_labels() {
  local key value
  for key in user account partition; do
    value=SLURM_JOB_${key^^}
    value=${!value:-}
    value=${value//[^[:alnum:]._@-]/_}
    if [[ $value ]]; then labels+=(--label "slurm_$key=${value:0:253}"); fi
  done
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

memory=$DEFAULT_MEMORY compute=$DEFAULT_COMPUTE gang=$GANG
read_comment
labels=()
read_labels
names=()
for gpu in $gpus; do
  if ! said=$(make_vgpu "$gpu" 2>&1); then
    remove_vgpus || fail "the job's vGPUs cannot be removed"
    said=${said#tessera: }
    if may_wait "$said" && requeue "$said"; then refuse "it waits for others: $said"; fi
    refuse "$said"
  fi
  names+=("$prefix$gpu")
done
(IFS=,; echo "vgpus ${names[*]}") > "$record"
