"""Post-processing of ensemble forecasts, with the baselines and scores of ENS-10.

```
forecasts          what the networks read, and what came true       forecasts.py
generated_fields   forecasts that are drawn, for want of real ones  generated_fields.py
ens10_files        those of ENS-10's files, if they are at hand      ens10_files.py
scores             CRPS, EECRPS, extreme forecast indices            scores.py
networks           EMOS, a small MLP, a U-Net                        networks.py
__main__           trained, pruned and timed                         __main__.py
```
Source: Ashkboos and others, ENS-10 (arXiv 2206.14786), abstract, and the baselines in its authors' repository.
"""
