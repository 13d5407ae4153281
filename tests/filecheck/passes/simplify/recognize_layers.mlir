// RUN: xdsl-opt %s -p pebble-recognize-layers --split-input-file | filecheck %s

// CHECK-LABEL: @gelu
func.func @gelu(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %root = pebble.constant dense<1.4142135> : tensor<1xf32>
  %one = pebble.constant dense<1.0> : tensor<f32>
  %half = pebble.constant dense<0.5> : tensor<f32>
  %a = pebble.div %x, %root : (tensor<?x2xf32>, tensor<1xf32>) -> tensor<?x2xf32>
  %b = pebble.activate <erf> %a : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %c = pebble.add %b, %one : (tensor<?x2xf32>, tensor<f32>) -> tensor<?x2xf32>
  %d = pebble.mul %x, %c : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %y = pebble.activate <gelu> %x {pebble.node = "last", pebble.values = ["y"]}
  // CHECK-NEXT: func.return %y
  %y = pebble.mul %half, %d {pebble.node = "last", pebble.values = ["y"]} : (tensor<f32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @gelu_tanh
func.func @gelu_tanh(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %cubic = pebble.constant dense<0.044715> : tensor<f32>
  %root = pebble.constant dense<0.797885> : tensor<f32>
  %one = pebble.constant dense<1.0> : tensor<f32>
  %half = pebble.constant dense<0.5> : tensor<f32>
  %a = pebble.activate <square> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %b = pebble.mul %a, %x : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  %c = pebble.mul %cubic, %b : (tensor<f32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  %d = pebble.add %x, %c : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  %e = pebble.mul %d, %root : (tensor<?x2xf32>, tensor<f32>) -> tensor<?x2xf32>
  %f = pebble.activate <tanh> %e : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %g = pebble.add %one, %f : (tensor<f32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  %h = pebble.mul %half, %x : (tensor<f32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %y = pebble.activate <gelu_tanh> %x
  %y = pebble.mul %h, %g : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @silu
func.func @silu(%x: tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>) {
  %alpha = pebble.constant dense<1.5> : tensor<f32>
  %a = pebble.activate <sigmoid> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: pebble.activate <silu(1.0)> %x
  %y = pebble.mul %x, %a : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  %b = pebble.mul %alpha, %x : (tensor<f32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  %c = pebble.activate <sigmoid> %b : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: pebble.activate <silu(1.5)> %x
  %z = pebble.mul %c, %x : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y, %z : tensor<?x2xf32>, tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @mish
func.func @mish(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %a = pebble.activate <softplus> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %b = pebble.activate <tanh> %a : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %y = pebble.activate <mish> %x
  %y = pebble.mul %x, %b : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @hard_swish
func.func @hard_swish(%x: tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>) {
  %three = pebble.constant dense<3.0> : tensor<f32>
  %six = pebble.constant dense<6.0> : tensor<f32>
  %a = pebble.add %x, %three : (tensor<?x2xf32>, tensor<f32>) -> tensor<?x2xf32>
  %b = pebble.activate <clip(0.0, 6.0)> %a : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %c = pebble.mul %x, %b : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: pebble.activate <hard_swish> %x
  %y = pebble.div %c, %six : (tensor<?x2xf32>, tensor<f32>) -> tensor<?x2xf32>
  %d = pebble.activate <hard_sigmoid(0.16666667, 0.5)> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: pebble.activate <hard_swish> %x
  %z = pebble.mul %d, %x : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y, %z : tensor<?x2xf32>, tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @leaky_relu
func.func @leaky_relu(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %slope = pebble.constant dense<0.25> : tensor<1xf32>
  // CHECK-NEXT: %y = pebble.activate <leaky_relu(0.25)> %x
  %y = pebble.prelu %x, %slope : (tensor<?x2xf32>, tensor<1xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @layer_norm
func.func @layer_norm(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %epsilon = pebble.constant dense<0.5> : tensor<f32>
  %scale = pebble.constant dense<[2.0, 3.0]> : tensor<2xf32>
  %bias = pebble.constant dense<[[4.0, 5.0]]> : tensor<1x2xf32>
  %m = pebble.reduce_mean %x : (tensor<?x2xf32>) -> tensor<?x1xf32>
  %d = pebble.sub %x, %m : (tensor<?x2xf32>, tensor<?x1xf32>) -> tensor<?x2xf32>
  %s = pebble.mul %d, %d : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  %v = pebble.reduce_mean %s : (tensor<?x2xf32>) -> tensor<?x1xf32>
  %e = pebble.add %v, %epsilon : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
  %r = pebble.activate <sqrt> %e : (tensor<?x1xf32>) -> tensor<?x1xf32>
  %q = pebble.div %d, %r : (tensor<?x2xf32>, tensor<?x1xf32>) -> tensor<?x2xf32>
  %p = pebble.mul %scale, %q : (tensor<2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: [[S:%.*]] = pebble.constant dense<[2.000000e+00, 3.000000e+00]> : tensor<2xf32>
  // CHECK-NEXT: [[B:%.*]] = pebble.constant dense<[4.000000e+00, 5.000000e+00]> : tensor<2xf32>
  // CHECK-NEXT: pebble.layer_norm %x scale [[S]] bias [[B]] epsilon 5.000000e-01 {pebble.values = ["y"]}
  // CHECK-NEXT: func.return
  %y = pebble.add %p, %bias {pebble.values = ["y"]} : (tensor<?x2xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @rms_norm
func.func @rms_norm(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %epsilon = pebble.constant dense<0.5> : tensor<f32>
  %scale = pebble.constant dense<[2.0, 3.0]> : tensor<2xf32>
  %s = pebble.activate <square> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %v = pebble.reduce_mean %s : (tensor<?x2xf32>) -> tensor<?x1xf32>
  %e = pebble.add %epsilon, %v : (tensor<f32>, tensor<?x1xf32>) -> tensor<?x1xf32>
  %r = pebble.activate <sqrt> %e : (tensor<?x1xf32>) -> tensor<?x1xf32>
  %i = pebble.activate <reciprocal> %r : (tensor<?x1xf32>) -> tensor<?x1xf32>
  %q = pebble.mul %i, %x : (tensor<?x1xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: [[S:%.*]] = pebble.constant dense<[2.000000e+00, 3.000000e+00]> : tensor<2xf32>
  // CHECK-NEXT: pebble.rms_norm %x scale [[S]] epsilon 5.000000e-01
  // CHECK-NEXT: func.return
  %y = pebble.mul %q, %scale : (tensor<?x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A batch norm of images, one product and sum after the other.
// CHECK-LABEL: @batch_norm
func.func @batch_norm(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %mean = pebble.constant dense<[[[1.0]], [[2.0]]]> : tensor<2x1x1xf32>
  %factor = pebble.constant dense<[[[[4.0]], [[0.5]]]]> : tensor<1x2x1x1xf32>
  %two = pebble.constant dense<2.0> : tensor<f32>
  // CHECK: [[S:%.*]] = pebble.constant dense<[2.000000e+00, 2.500000e-01]>
  // CHECK: [[B:%.*]] = pebble.constant dense<[-1.000000e+00, 1.500000e+00]>
  // CHECK: [[Z:%.*]] = pebble.constant dense<0.000000e+00> : tensor<2xf32>
  // CHECK: [[O:%.*]] = pebble.constant dense<1.000000e+00> : tensor<2xf32>
  // CHECK-NEXT: pebble.batch_norm %x scale [[S]] bias [[B]] mean [[Z]] variance [[O]] epsilon 0.000000e+00 {pebble.values = ["y"]}
  // CHECK-NEXT: func.return
  %a = pebble.sub %x, %mean : (tensor<?x2x4x4xf32>, tensor<2x1x1xf32>) -> tensor<?x2x4x4xf32>
  %b = pebble.mul %a, %factor : (tensor<?x2x4x4xf32>, tensor<1x2x1x1xf32>) -> tensor<?x2x4x4xf32>
  %c = pebble.div %b, %two : (tensor<?x2x4x4xf32>, tensor<f32>) -> tensor<?x2x4x4xf32>
  %y = pebble.add %c, %mean {pebble.values = ["y"]} : (tensor<?x2x4x4xf32>, tensor<2x1x1xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}
