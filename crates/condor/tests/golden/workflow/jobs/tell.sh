#!/bin/sh
export MODE='it'\''s $HOME'
export WINDLASS_JOB_NAME='tell'
exec /bin/sh -c 'echo done'
