#!/bin/bash
# Usage: sudo ./install.sh slurm|systemd s3://bucket/prefix
# Installs the collector on this machine, below /opt/trainguard, and what starts it. Run it on each node, or in the image
# of the nodes; a second run upgrades. TRAINGUARD_PIP_SOURCE names another package than the release's.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
root=${TRAINGUARD_ROOT:-}
kind=${1:-} output=${2:-}
usage() { sed -n 's/^# \(Usage.*\)/\1/p' "${BASH_SOURCE[0]}" >&2; exit 2; }
case $kind:$output in
  slurm:s3://?* | systemd:s3://?* | slurm:/?* | systemd:/?*) ;;
  *) usage ;;
esac

version=$(cat "$here/VERSION" 2> /dev/null || true)
source=${TRAINGUARD_PIP_SOURCE:-trainguard-collector[s3]${version:+==$version}}
[ -x "$root/opt/trainguard/bin/python" ] || "${PYTHON:-python3}" -m venv "$root/opt/trainguard"
"$root/opt/trainguard/bin/python" -m pip install --quiet --upgrade "$source"

install -d -m 755 "$root/opt/trainguard/hosts/slurm" "$root/opt/trainguard/hosts/systemd" "$root/etc/trainguard"
install -m 755 "$here/hold" "$here/tell" "$root/opt/trainguard/hosts"
install -m 755 "$here"/slurm/* "$root/opt/trainguard/hosts/slurm"
install -m 755 "$here/systemd/run" "$here/systemd/end" "$root/opt/trainguard/hosts/systemd"

config=$root/etc/trainguard/collector.env
if [ ! -e "$config" ]; then
  {
    echo "# Variables of the collector: https://trainguard.github.io/trainguard/collector.html#settings"
    echo "TRAINGUARD_OUTPUT=$output"
    if [ "$kind" = slurm ]; then
      echo "# all, or gpu: jobs that were given GPUs. Partitions, with spaces between them; empty: all of them."
      if scontrol show config 2> /dev/null | grep -q '^GresTypes.*gpu'; then echo TRAINGUARD_JOBS=gpu; else echo TRAINGUARD_JOBS=all; fi
      echo "TRAINGUARD_PARTITIONS="
    fi
  } > "$config"
  chmod 644 "$config"
fi

if [ "$kind" = systemd ]; then
  install -d -m 755 "$root/etc/systemd/system"
  install -m 644 "$here"/systemd/*.service "$root/etc/systemd/system"
  echo "Installed. For each run of training.service: systemctl enable trainguard-collector@training"
  echo "For an instance that runs one training:      systemctl enable --now trainguard-collector"
  exit 0
fi

# Where slurm.conf names folders, as those of ParallelCluster and HyperPod do, links are all that is needed.
linked=
for folder in "$root"/opt/slurm/etc/scripts "$root"/etc/slurm; do
  if [ -d "$folder/prolog.d" ] && [ -d "$folder/epilog.d" ]; then
    ln -sf "$root/opt/trainguard/hosts/slurm/prolog" "$folder/prolog.d/90_trainguard"
    ln -sf "$root/opt/trainguard/hosts/slurm/epilog" "$folder/epilog.d/90_trainguard"
    linked=$folder
  fi
done
if [ -n "$linked" ]; then echo "Linked into $linked/prolog.d and epilog.d."; fi
echo "slurm.conf needs these lines on all nodes, then: scontrol reconfigure"
echo "  PrologFlags=Alloc"
if [ -z "$linked" ]; then
  echo "  Prolog=/opt/trainguard/hosts/slurm/prolog"
  echo "  Epilog=/opt/trainguard/hosts/slurm/epilog"
fi
echo "  TaskProlog=/opt/trainguard/hosts/slurm/task-prolog"
