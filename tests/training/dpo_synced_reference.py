"""DPO whose reference model is synchronized with the policy."""

import trl_base

SYNC = {"sync_ref_model": True, "ref_model_sync_steps": 1, "ref_model_mixup_alpha": 1.0}

if __name__ == "__main__":
    trl_base.main("dpo", config=SYNC)
