"""The paper's published numbers: "Relational Experience Replay: Continual Learning by Adaptively Tuning Task-wise
Relationship", Quanziang Wang, Renzhen Wang, Yuexiang Li, Dong Wei, Hong Wang, Kai Ma, Yefeng Zheng and Deyu Meng.

Mean ± standard deviation, in percent. A table is named after its study, a row as the study labels it. Each table holds
what it prints, also where two disagree: DER++ at M = 500 is 72.11 in Tables 1 and 3 and 73.11 in Table 4.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Figure(NamedTuple):
    """A published mean and its standard deviation."""

    mean: float
    std: float


SETTINGS = (
    "ResNet-18, batch 32 and 32 a memory draw, 50 epochs a task, SGD 0.03 without momentum, five seeds; weights 1, 1 (ER, ER-ACE), "
    "preset 1, 0.5 (RER, RER-ACE) and 1, 0.2, 0.5 (RDER); warm-up 25 epochs, Interval 5 unless varied."
)

Row = dict[str, dict[str, Figure | None]]  # "class_il" or "task_il": "acc" or "bwt": a figure, None where none is given

_TABLES = {
    # Table 1. The paper's upper bound is joint, its lower bound finetune.
    "table1-cifar10": """
        row                class_il acc  class_il bwt  task_il acc  task_il bwt
        joint              92.20±0.15    -             98.31±0.12   -
        finetune           19.62±0.05    -96.39±0.12   61.02±3.33   -46.24±2.12
        oewc               19.49±0.12    -91.64±3.07   68.29±3.92   -29.13±4.11
        si                 19.48±0.17    -95.78±0.64   68.05±5.91   -38.76±0.89
        lwf                19.61±0.05    -96.69±0.25   63.29±2.35   -32.56±0.56
        gem, M = 200       25.54±0.76    -82.61±1.60   90.44±0.94   -9.27±2.07
        agem, M = 200      20.04±0.34    -95.73±0.20   83.88±1.49   -16.39±0.80
        icarl, M = 200     49.02±3.20    -28.72±0.49   88.99±2.13   -1.01±4.15
        gss, M = 200       39.07±5.59    -75.25±4.07   88.80±2.89   -8.56±1.78
        er, M = 200        55.84±0.71    -47.77±1.39   92.41±0.59   -5.73±0.38
        rer, M = 200       58.59±0.74    -44.50±0.80   92.85±0.36   -5.40±0.65
        er-ace, M = 200    63.02±1.29    -20.35±1.76   92.59±0.36   -5.33±0.41
        rer-ace, M = 200   63.52±0.71    -20.11±5.66   92.63±0.58   -5.43±0.67
        der++, M = 200     62.30±1.07    -35.83±1.34   90.74±1.01   -7.45±1.07
        rder, M = 200      65.38±0.42    -34.16±1.90   91.67±0.80   -6.81±1.19
        gem, M = 500       26.20±1.26    -74.31±4.62   92.16±0.69   -9.12±0.21
        agem, M = 500      22.67±0.57    -94.01±1.16   89.48±1.45   -14.26±4.18
        icarl, M = 500     47.55±3.95    -25.71±1.10   88.22±2.62   -1.06±4.21
        gss, M = 500       49.73±4.78    -62.88±2.67   91.02±1.57   -7.73±3.99
        er, M = 500        69.01±0.37    -33.02±2.62   94.28±0.27   -3.09±1.61
        rer, M = 500       69.22±1.96    -29.79±2.87   94.50±0.41   -3.40±0.33
        er-ace, M = 500    71.26±0.66    -13.37±1.06   94.31±0.23   -3.19±0.39
        rer-ace, M = 500   71.29±1.15    -12.53±2.41   94.25±0.23   -3.16±0.80
        der++, M = 500     72.11±1.41    -23.40±1.32   94.21±0.32   -3.98±0.60
        rder, M = 500      73.99±1.03    -22.86±1.76   94.04±0.43   -3.82±0.59
        gem, M = 5120      25.26±3.46    -75.27±4.41   95.55±0.02   -6.91±2.33
        agem, M = 5120     21.99±2.29    -84.49±3.08   90.10±2.09   -9.89±0.40
        icarl, M = 5120    55.07±1.55    -24.94±0.14   92.23±0.84   -0.99±1.41
        gss, M = 5120      67.27±4.27    -58.11±9.12   94.19±1.15   -6.38±1.71
        er, M = 5120       83.30±0.50    -13.79±1.40   96.95±0.15   -0.98±0.36
        rer, M = 5120      83.53±0.55    -12.13±1.29   96.98±0.17   -0.79±0.24
        er-ace, M = 5120   82.98±0.38    -3.99±0.61    96.76±0.08   -0.63±0.30
        rer-ace, M = 5120  83.74±0.79    -4.05±1.81    96.80±0.20   -0.57±0.27
        der++, M = 5120    84.50±0.63    -9.79±0.34    95.91±0.57   -1.57±0.25
        rder, M = 5120     85.56±0.38    -8.81±0.71    96.21±0.22   -1.42±0.09
    """,
    "table1-tinyimagenet": """
        row                class_il acc  class_il bwt  task_il acc  task_il bwt
        joint              59.99±0.19    -             82.04±0.10   -
        finetune           7.92±0.26     -76.73±0.08   18.31±0.68   -64.97±1.70
        oewc               7.58±0.10     -73.91±0.79   19.20±0.31   -59.86±0.42
        si                 6.58±0.31     -67.91±0.96   36.32±0.13   -53.26±0.75
        lwf                8.46±0.22     -76.74±0.44   15.85±0.58   -67.79±0.23
        gem, M = 200       -             -             -            -
        agem, M = 200      8.07±0.08     -77.02±0.22   22.77±0.03   -56.61±0.32
        icarl, M = 200     7.53±0.79     -22.70±0.44   28.19±1.47   -10.36±0.31
        gss, M = 200       -             -             -            -
        er, M = 200        8.67±0.25     -77.29±0.26   39.28±0.83   -42.05±0.29
        rer, M = 200       9.35±0.21     -76.67±0.38   40.83±0.58   -41.19±0.55
        er-ace, M = 200    11.67±0.29    -49.03±1.61   42.08±0.35   -37.71±1.10
        rer-ace, M = 200   12.18±0.41    -48.91±2.59   44.11±0.62   -36.62±1.17
        der++, M = 200     12.26±0.31    -68.37±1.38   40.47±1.53   -40.41±1.29
        rder, M = 200      13.96±0.64    -67.02±1.24   40.87±0.92   -39.87±1.31
        gem, M = 500       -             -             -            -
        agem, M = 500      8.06±0.04     -77.06±0.41   25.33±0.49   -55.68±1.01
        icarl, M = 500     9.38±1.53     -20.89±0.23   31.55±3.27   -7.30±0.79
        gss, M = 500       -             -             -            -
        er, M = 500        10.40±0.16    -74.36±0.58   48.82±0.34   -31.06±1.53
        rer, M = 500       11.50±0.47    -74.13±0.72   51.28±0.93   -30.29±1.24
        er-ace, M = 500    19.59±0.13    -47.56±0.68   50.99±0.45   -29.32±0.46
        rer-ace, M = 500   20.41±0.66    -42.22±1.09   54.62±0.87   -25.15±0.98
        der++, M = 500     19.29±1.14    -60.58±0.46   51.39±0.91   -26.90±0.52
        rder, M = 500      20.06±1.18    -56.16±1.38   52.56±0.69   -25.02±0.24
        gem, M = 5120      -             -             -            -
        agem, M = 5120     7.96±0.13     -76.01±0.52   26.22±0.65   -55.61±0.84
        icarl, M = 5120    14.08±1.92    -16.00±0.28   40.83±3.11   -2.60±0.35
        gss, M = 5120      -             -             -            -
        er, M = 5120       28.52±0.37    -52.54±1.45   68.46±0.40   -10.13±0.20
        rer, M = 5120      33.86±0.64    -45.56±2.13   69.31±0.41   -10.68±0.25
        er-ace, M = 5120   37.02±0.17    -33.29±1.03   68.69±0.19   -9.88±0.42
        rer-ace, M = 5120  36.97±0.94    -33.79±3.07   69.05±0.73   -9.51±0.79
        der++, M = 5120    37.88±0.37    -30.62±1.78   68.05±0.53   -8.80±0.24
        rder, M = 5120     39.67±0.96    -29.37±1.53   68.82±0.54   -8.03±0.46
    """,
    # Table 2. The paper has a column a method and a row a memory size, Class-IL above Task-IL.
    "table2-cifar100": """
        row                class_il acc  task_il acc
        er, M = 100        11.31±0.21    58.64±1.31
        rer, M = 100       13.94±0.89    59.77±0.03
        er-ace, M = 100    18.59±1.08    59.91±1.01
        rer-ace, M = 100   20.20±0.86    61.10±0.93
        der++, M = 100     14.98±0.65    58.32±1.27
        rder, M = 100      20.79±1.05    59.07±0.73
        er, M = 200        14.78±0.40    66.31±0.76
        rer, M = 200       16.40±0.53    66.83±0.97
        er-ace, M = 200    25.14±1.83    64.81±3.14
        rer-ace, M = 200   26.64±0.29    67.42±0.60
        der++, M = 200     24.17±1.37    66.47±0.57
        rder, M = 200      30.65±0.76    68.60±0.51
        er, M = 500        23.10±0.32    73.10±0.99
        rer, M = 500       26.97±0.75    73.99±0.51
        er-ace, M = 500    36.02±0.84    74.13±0.84
        rer-ace, M = 500   36.06±1.14    74.54±1.37
        der++, M = 500     35.19±1.30    74.10±1.62
        rder, M = 500      39.50±1.54    75.59±0.85
        er, M = 5120       51.43±1.01    86.16±0.47
        rer, M = 5120      54.08±0.63    85.35±0.34
        er-ace, M = 5120   53.93±2.04    84.69±1.32
        rer-ace, M = 5120  54.38±1.08    85.15±0.41
        der++, M = 5120    55.58±1.86    86.23±2.18
        rder, M = 5120     60.07±0.23    86.54±0.31
    """,
    # Table 3, CIFAR-10. The paper's Vanilla is der+++vanilla.
    "table3-vanilla": """
        row                      class_il acc  task_il acc
        der++, M = 200           62.30±1.07    90.74±1.01
        rder, M = 200            65.38±0.42    91.67±0.80
        der+++vanilla, M = 200   62.85±2.90    91.20±1.88
        der++, M = 500           72.11±1.41    94.21±0.32
        rder, M = 500            73.99±1.03    94.04±0.43
        der+++vanilla, M = 500   72.28±0.93    93.42±0.75
        der++, M = 5120          84.50±0.63    95.91±0.57
        rder, M = 5120           85.56±0.38    96.21±0.22
        der+++vanilla, M = 5120  82.26±2.45    95.3±0.72
    """,
    # Table 4, CIFAR-10. The paper's Split RDER is der+++split.
    "table4-split": """
        row                    class_il acc  task_il acc
        der++, M = 200         62.30±1.07    90.74±1.01
        rder, M = 200          65.38±0.42    91.67±0.80
        der+++split, M = 200   62.53±0.66    91.36±0.77
        der++, M = 500         73.11±1.41    94.21±0.32
        rder, M = 500          73.99±1.03    94.04±0.43
        der+++split, M = 500   72.57±0.73    93.77±0.33
        der++, M = 5120        84.50±0.63    95.91±0.57
        rder, M = 5120         85.56±0.38    96.21±0.22
        der+++split, M = 5120  85.35±0.24    96.19±0.46
    """,
    # Table 5, CIFAR-10, laid out in the paper as Table 2.
    "table5-small-memory": """
        row               class_il acc  task_il acc
        er, M = 50        36.47±2.92    88.13±1.16
        rer, M = 50       37.43±1.27    88.07±0.80
        er-ace, M = 50    42.16±1.78    87.09±1.05
        rer-ace, M = 50   41.95±1.07    86.45±1.05
        der++, M = 50     46.70±4.14    84.00±0.84
        rder, M = 50      49.75±1.92    85.81±1.99
        er, M = 100       46.75±1.58    90.27±1.05
        rer, M = 100      50.85±1.14    90.56±0.41
        er-ace, M = 100   56.96±2.39    90.28±0.38
        rer-ace, M = 100  57.98±3.02    91.01±0.04
        der++, M = 100    53.82±1.21    87.48±1.43
        rder, M = 100     56.36±1.54    89.16±1.37
    """,
    # Table 6, CIFAR-10.
    "table6-warmup": """
        row                         class_il acc  task_il acc
        rder, M = 50, warmup = 17   48.02±0.70    85.13±1.27
        rder, M = 50, warmup = 25   49.75±1.92    85.81±1.99
        rder, M = 50, warmup = 33   47.41±0.91    85.12±1.35
        rder, M = 200, warmup = 17  64.53±1.13    91.84±0.29
        rder, M = 200, warmup = 25  65.38±0.42    91.67±0.80
        rder, M = 200, warmup = 33  64.84±1.08    92.88±0.42
        rder, M = 500, warmup = 17  72.17±1.11    93.57±0.17
        rder, M = 500, warmup = 25  73.99±1.03    94.04±0.43
        rder, M = 500, warmup = 33  73.03±1.49    93.85±0.44
    """,
    # Table 7, CIFAR-10.
    "table7-interval": """
        row                           class_il acc  task_il acc
        rder, M = 50, interval = 1    48.12±0.51    84.44±1.48
        rder, M = 50, interval = 5    49.75±1.92    85.81±1.99
        rder, M = 50, interval = 10   46.21±1.00    85.18±1.65
        rder, M = 200, interval = 1   64.27±1.46    91.57±0.59
        rder, M = 200, interval = 5   65.38±0.42    91.67±0.80
        rder, M = 200, interval = 10  64.66±0.29    91.71±0.62
        rder, M = 500, interval = 1   71.23±0.99    93.15±0.68
        rder, M = 500, interval = 5   73.99±1.03    94.04±0.43
        rder, M = 500, interval = 10  72.11±0.46    93.62±0.23
    """,
    # The table within the figure on task similarity, CIFAR-10, ten runs each. The paper names neither the setting nor
    # the memory size; Class-IL is our reading. Its last column, the gap, is the difference of the setups.
    "similarity": """
        row                                                    class_il acc
        er, setup 1 (airplane, automobile after ship, truck)   81.38±1.67
        er, setup 2 (cat, horse after ship, truck)             88.29±0.89
        rer, setup 1 (airplane, automobile after ship, truck)  84.32±0.81
        rer, setup 2 (cat, horse after ship, truck)            89.41±1.60
    """,
}


def _parse(table: str) -> dict[str, Row]:
    """Rows by label; columns are two spaces or more apart, and the first line names them."""
    header, *lines = (re.split(r" {2,}", line.strip()) for line in table.strip().splitlines())
    rows: dict[str, Row] = {}
    for label, *cells in lines:
        rows[label] = {setting: {"acc": None, "bwt": None} for setting in ("class_il", "task_il")}
        for column, cell in zip(header[1:], cells, strict=True):
            setting, metric = column.split()
            rows[label][setting][metric] = None if cell == "-" else Figure(*map(float, cell.split("±")))
    return rows


PUBLISHED: dict[str, dict[str, Row]] = {study: _parse(table) for study, table in _TABLES.items()}


def published(study: str, row: str) -> Row | None:
    """What the paper gives for a row of a study; None where it has no such study or row."""
    return PUBLISHED.get(study, {}).get(row)
