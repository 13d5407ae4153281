"""Commands on folders of decoders: onnxruntime-genai's and transformers', with their tokenizers."""
