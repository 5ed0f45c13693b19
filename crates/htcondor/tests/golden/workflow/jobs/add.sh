#!/bin/sh
export MODE='it'\''s $HOME'
export WINDLASS_JOB_NAME='add'
exec 2>&1
mkdir -p 'out'
"$(command -v bash || echo /bin/sh)" -c 'nice "${BASH:-/bin/sh}" -c '\''cat out/part*.csv > out/sum.csv'\'''
code=$?
[ $code = 0 ] || exit $code
[ -e 'out/sum.csv' ] || { printf '%s\n' 'windlass: ended with 0 but did not write out/sum.csv' >&2; exit 1; }
