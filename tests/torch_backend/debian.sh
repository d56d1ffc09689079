#!/bin/sh
# Tests the torch backend on the PyTorch of a Debian release, for the CPU and without CUDA, in a
# folder of its own (1.5 GB, made once). As root, with debootstrap:
#
#     tests/torch_backend/debian.sh trixie /srv/trixie     PyTorch 2.6.0, Python 3.13
#     tests/torch_backend/debian.sh forky /srv/forky       PyTorch 2.14.1, Python 3.14 (in November 2026)
#
# What follows is given to pytest in place of tests/torch_backend.
set -eu
release=$1 root=$2
shift 2
repository=$(cd "$(dirname "$0")/../.." && pwd)
scripts=/usr/share/debootstrap/scripts

if [ ! -e "$root/opt/venv/ready" ]; then
    [ -e "$scripts/$release" ] || ln -s sid "$scripts/$release"
    debootstrap --variant=minbase --include=ca-certificates "$release" "$root" http://deb.debian.org/debian
    cp -r /etc/ssl/certs/. "$root/etc/ssl/certs/"
    cp /etc/resolv.conf "$root/etc/"
    # a mirror may lag behind
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/99lag"
    chroot "$root" apt-get update
    DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y --no-install-recommends \
        python3-torch python3-numpy python3-pip python3-venv
    chroot "$root" python3 -m venv --system-site-packages /opt/venv
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt chroot "$root" /opt/venv/bin/pip install \
        hypothesis networkx numba pydantic pytest rich scipy simpy typer
    touch "$root/opt/venv/ready"
fi

mkdir -p "$root/repository"
for place in /dev /proc; do
    mountpoint -q "$root$place" || mount --bind "$place" "$root$place"
done
if ! mountpoint -q "$root/repository"; then
    mount --bind "$repository" "$root/repository"
    mount -o remount,ro,bind "$root/repository"
fi
[ $# -gt 0 ] || set -- tests/torch_backend
exec chroot "$root" sh -c 'cd /repository && exec env PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/tmp/numba /opt/venv/bin/python -m pytest -q -p no:cacheprovider \
    -o filterwarnings=default "$@"' sh "$@"
