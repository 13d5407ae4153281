"""The command `finetune`."""
