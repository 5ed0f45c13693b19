#!/bin/sh
export MODE='it'\''s $HOME'
export WINDLASS_JOB_NAME='prepare'
export WINDLASS_CPUS='1'
export WINDLASS_MEMORY_BYTES='524288000'
mkdir -p 'data'
"$(command -v bash || echo /bin/sh)" -c 'mkdir -p data
echo mesh > data/mesh.dat
'
code=$?
[ $code = 0 ] || exit $code
[ -e 'data/mesh.dat' ] || { printf '%s\n' 'windlass: ended with 0 but did not write data/mesh.dat' >&2; exit 1; }
