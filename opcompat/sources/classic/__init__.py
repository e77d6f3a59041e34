"""Classic TensorFlow graphs (TensorFlow's own functions, Keras, TFP) as sources, by way of tf2jax or tf2onnx."""
