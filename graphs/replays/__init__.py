"""What a run recorded, trained again and compared with the run step by step."""
