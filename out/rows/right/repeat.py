"""Repeats a row of a sweep: python repeat.py"""

import os
import sys

os.chdir('/tmp/w/sweep')
sys.path[:0] = ['/tmp/w/sweep']

from onnx_aot.sweep import repeat_row

ROW = {'name': 'right',
 'task': 'swept_tasks:right',
 'settings': {},
 'model': 'right',
 'options': {},
 'limits': {'seconds': 600.0, 'memory': None},
 'cores': 1,
 'gpus': 0.0,
 'torch': '',
 'code': (),
 'files': (),
 'keep': 'never'}

if __name__ == "__main__":
    repeat_row(ROW)
