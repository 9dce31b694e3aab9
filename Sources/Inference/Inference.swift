// Inference
