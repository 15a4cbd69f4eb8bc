#!/usr/bin/env bash
# The one step of the action. What it is told comes in variables, never as text of this script.
set -euo pipefail

if [ -n "${AGENTSH_ARCHIVE:-}" ]; then
  place="$RUNNER_TEMP/agentsh"
  mkdir -p "$place"
  tar --extract --gzip --file "$AGENTSH_ARCHIVE" --directory "$place" --strip-components 1
  PATH="$place/bin:$PATH"
  echo "$place/bin" >> "$GITHUB_PATH"
fi

# Where AppArmor keeps user namespaces from programs without a profile, agentsh gets one. Elsewhere this does nothing, and
# where nobody may do it the run below says what is missing.
restricted=/proc/sys/kernel/apparmor_restrict_unprivileged_userns
if [ "${AGENTSH_TIER:-namespaces}" = namespaces ] && [ -r $restricted ] && [ "$(cat $restricted)" = 1 ]; then
  sudo -n "$(command -v agentsh)" setup || true
fi

report="$RUNNER_TEMP/agentsh-report.json"
echo "report=$report" >> "$GITHUB_OUTPUT"
arguments=(--tier "${AGENTSH_TIER:-namespaces}" --report-json "$report")
if [ -n "${AGENTSH_POLICY:-}" ]; then arguments+=(--policy "$AGENTSH_POLICY"); fi

status=0
agentsh run "${arguments[@]}" -- bash -c "$AGENTSH_RUN" || status=$?
{
  echo '```'
  agentsh report latest || true
  echo '```'
} >> "$GITHUB_STEP_SUMMARY"
exit "$status"
