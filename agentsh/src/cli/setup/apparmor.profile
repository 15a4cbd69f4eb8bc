# Made by `agentsh setup`; `agentsh setup --undo` removes it.
# Lets agentsh make user namespaces, and no other program: the restriction of this machine stays as it is.
abi <abi/4.0>,
include <tunables/global>

profile agentsh /usr/bin/agentsh flags=(unconfined) {
  userns,

  include if exists <local/agentsh>
}
